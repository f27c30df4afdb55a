// Command mcs-api prints the CustomResourceDefinitions of the Multi-Cluster Services API.
package main

import (
	"bytes"
	"os"

	"sigs.k8s.io/mcs-api/config/crd"
)

func main() {
	definitions := [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD}
	if _, err := os.Stdout.Write(bytes.Join(definitions, []byte("---\n"))); err != nil {
		os.Exit(1)
	}
}
