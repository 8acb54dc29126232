// Runs NVIDIA's upgrade library as the GPU Operator does: one worker, the same watches, and a pass
// every two minutes. The ClusterPolicy is only read; whoever runs this creates the DaemonSets.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/NVIDIA/k8s-operator-libs/pkg/upgrade"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	driverName        = "gpu"
	component         = "nvidia-gpu-operator"
	validatorSelector = "app=nvidia-operator-validator"
)

func main() {
	namespace := flag.String("namespace", "gpu-operator", "namespace of the driver DaemonSets")
	requeue := flag.Duration("requeue", 2*time.Minute, "time from one pass to the next")
	flag.Parse()
	if err := run(*namespace, *requeue); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(namespace string, requeue time.Duration) error {
	ctrl.SetLogger(zap.New())
	config := ctrl.GetConfigOrDie()
	// Newer operators have no limit on the client's side.
	config.QPS = -1
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	upgrade.SetDriverName(driverName)
	states, err := upgrade.NewClusterUpgradeStateManager(
		ctrl.Log.WithName("upgrade"), config, manager.GetEventRecorderFor(component))
	if err != nil {
		return err
	}
	states = states.WithPodDeletionEnabled(usesGPU).WithValidationEnabled(validatorSelector)
	reconciler := &upgradeReconciler{
		client:    manager.GetClient(),
		states:    states,
		namespace: namespace,
		requeue:   requeue,
	}
	if err := reconciler.register(manager); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
