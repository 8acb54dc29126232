// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The shape of the module for unified memory: a device file whose number the kernel chooses. */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/module.h>

static dev_t number;
static struct cdev device;

int stand_in_open(void);

static int open_device(struct inode *inode, struct file *file)
{
	return stand_in_open();
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = open_device,
};

static int __init load(void)
{
	int error = alloc_chrdev_region(&number, 0, 1, "nvidia-uvm");

	if (error)
		return error;
	cdev_init(&device, &operations);
	device.owner = THIS_MODULE;
	error = cdev_add(&device, number, 1);
	if (error)
		unregister_chrdev_region(number, 1);
	return error;
}

static void __exit unload(void)
{
	cdev_del(&device);
	unregister_chrdev_region(number, 1);
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Stand-in for a GPU driver's module nvidia-uvm");
MODULE_VERSION("580.95.05");
MODULE_LICENSE("Dual MIT/GPL");
