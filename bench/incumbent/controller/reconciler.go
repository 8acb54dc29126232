package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/NVIDIA/k8s-operator-libs/api/upgrade/v1alpha1"
	"github.com/NVIDIA/k8s-operator-libs/pkg/upgrade"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 3 * time.Second
	drainSkip      = "nvidia.com/gpu-driver-upgrade-drain.skip!=true"
)

var (
	driverLabels = map[string]string{"app": "nvidia-driver-daemonset"}
	policies     = schema.GroupVersionKind{Group: "nvidia.com", Version: "v1", Kind: "ClusterPolicy"}
	oneRequest   = []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "driver-upgrade"}}}
)

type upgradeReconciler struct {
	client    client.Client
	states    upgrade.ClusterUpgradeStateManager
	namespace string
	requeue   time.Duration
}

// Reconcile makes one pass over all nodes.
func (r *upgradeReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	policy, err := r.policy(ctx)
	if err != nil || policy == nil || !policy.AutoUpgrade {
		return ctrl.Result{}, err
	}
	state, err := r.states.BuildState(ctx, r.namespace, driverLabels)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.states.ApplyState(ctx, state, policy); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.requeue}, nil
}

// policy returns the upgrade policy of the only ClusterPolicy, or nil if there is none.
func (r *upgradeReconciler) policy(ctx context.Context) (*v1alpha1.DriverUpgradePolicySpec, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(policies)
	if err := r.client.List(ctx, list); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	fields, found, err := unstructured.NestedMap(list.Items[0].Object, "spec", "driver", "upgradePolicy")
	if err != nil || !found {
		return nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	policy := &v1alpha1.DriverUpgradePolicySpec{}
	if err := json.Unmarshal(text, policy); err != nil {
		return nil, err
	}
	if policy.PodDeletion == nil || policy.DrainSpec == nil {
		return nil, errors.New("the ClusterPolicy lacks podDeletion or drain, which Helm's values set")
	}
	if policy.DrainSpec.PodSelector != "" {
		policy.DrainSpec.PodSelector += ","
	}
	policy.DrainSpec.PodSelector += drainSkip
	return policy, nil
}

// register adds the watches; pods, annotations, cordons and readiness of nodes are not watched.
func (r *upgradeReconciler) register(manager ctrl.Manager) error {
	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(policies)
	enqueue := handler.EnqueueRequestsFromMapFunc(
		func(context.Context, client.Object) []reconcile.Request { return oneRequest })
	stateChanged := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		for _, key := range []string{upgrade.GetUpgradeStateLabelKey(), upgrade.GetUpgradeSkipNodeLabelKey()} {
			if e.ObjectOld.GetLabels()[key] != e.ObjectNew.GetLabels()[key] {
				return true
			}
		}
		return false
	}}
	ofDriver := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()["app"] == driverLabels["app"]
	})
	generation := predicate.GenerationChangedPredicate{}
	return ctrl.NewControllerManagedBy(manager).
		Named("upgrade-controller").
		Watches(policy, enqueue, builder.WithPredicates(generation)).
		Watches(&corev1.Node{}, enqueue, builder.WithPredicates(stateChanged)).
		Watches(&appsv1.DaemonSet{}, enqueue, builder.WithPredicates(predicate.And(generation, ofDriver))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				firstBackoff, longestBackoff),
		}).
		Complete(r)
}
