// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The shape of a GPU driver's main module: device files 195:0 to 195:253 and 195:255, the PCI
 * devices of the guest, and a symbol that the other modules use. It drives nothing.
 */
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>

#define DEVICES 195
#define CONTROL 255
#define GPUS 254

static unsigned int exit_ms;
module_param(exit_ms, uint, 0644);
MODULE_PARM_DESC(exit_ms, "Milliseconds that unloading takes");

static unsigned long page;
static struct cdev gpus, control;

int stand_in_open(void);

/* What the other modules depend on. */
int stand_in_open(void)
{
	return 0;
}
EXPORT_SYMBOL(stand_in_open);

static int open_device(struct inode *inode, struct file *file)
{
	return stand_in_open();
}

static int map_device(struct file *file, struct vm_area_struct *area)
{
	return vm_insert_page(area, area->vm_start, virt_to_page((void *)page));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = open_device,
	.mmap = map_device,
};

static int probe_device(struct pci_dev *device, const struct pci_device_id *id)
{
	return 0;
}

static const struct pci_device_id devices[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID) },
	{ }
};

static struct pci_driver driver = {
	.name = "nvidia",
	.id_table = devices,
	.probe = probe_device,
};

static int add_devices(struct cdev *device, unsigned int first, unsigned int count,
		       const char *name)
{
	int error = register_chrdev_region(MKDEV(DEVICES, first), count, name);

	if (error)
		return error;
	cdev_init(device, &operations);
	device->owner = THIS_MODULE;
	error = cdev_add(device, MKDEV(DEVICES, first), count);
	if (error)
		unregister_chrdev_region(MKDEV(DEVICES, first), count);
	return error;
}

static void remove_devices(struct cdev *device, unsigned int first, unsigned int count)
{
	cdev_del(device);
	unregister_chrdev_region(MKDEV(DEVICES, first), count);
}

static int __init load(void)
{
	int error;

	page = get_zeroed_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	error = add_devices(&gpus, 0, GPUS, "nvidia");
	if (error)
		goto no_gpus;
	error = add_devices(&control, CONTROL, 1, "nvidiactl");
	if (error)
		goto no_control;
	error = pci_register_driver(&driver);
	if (error)
		goto no_driver;
	return 0;
no_driver:
	remove_devices(&control, CONTROL, 1);
no_control:
	remove_devices(&gpus, 0, GPUS);
no_gpus:
	free_page(page);
	return error;
}

static void __exit unload(void)
{
	msleep(exit_ms);
	pci_unregister_driver(&driver);
	remove_devices(&control, CONTROL, 1);
	remove_devices(&gpus, 0, GPUS);
	free_page(page);
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Stand-in for a GPU driver's main module");
MODULE_VERSION("580.95.05");
MODULE_LICENSE("Dual MIT/GPL");
