package main

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// usesGPU selects the pods that have to leave a node before its driver is replaced.
func usesGPU(pod corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
		return false
	}
	for _, container := range pod.Spec.Containers {
		if namesGPU(container.Resources.Limits) || namesGPU(container.Resources.Requests) {
			return true
		}
	}
	return false
}

func namesGPU(resources corev1.ResourceList) bool {
	for name := range resources {
		if strings.HasPrefix(string(name), "nvidia.com/gpu") ||
			strings.HasPrefix(string(name), "nvidia.com/mig-") {
			return true
		}
	}
	return false
}
