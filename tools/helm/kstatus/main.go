// Tells the status of objects as Helm, Flux and others compute it: by kstatus, the library that
// they use. Reads a JSON array of objects from stdin and writes one of results, in their order.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type result struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func compute(encoded []byte) (result, error) {
	// Decoded as a client of Kubernetes decodes it: its integers are integers.
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(encoded); err != nil {
		return result{}, err
	}
	found, err := status.Compute(&object)
	if err != nil {
		return result{}, err
	}
	return result{Status: found.Status.String(), Message: found.Message}, nil
}

func run() error {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return fmt.Errorf("stdin is not a JSON array of objects: %w", err)
	}
	results := make([]result, 0, len(objects))
	for index, object := range objects {
		told, err := compute(object)
		if err != nil {
			return fmt.Errorf("object %d has no status: %w", index, err)
		}
		results = append(results, told)
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
