// flannel's VXLAN between the nodes of a cluster, for the range of pods that each Node has. It is flanneld without
// masquerading and without the backends for clouds, whose modules are not all published.
package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"k8s.io/klog/v2"
)

const annotationPrefix = "flannel.alpha.coreos.com"

func main() {
	if len(os.Args) != 5 {
		klog.Fatal("usage: NODE_NAME=... flannel KUBECONFIG NETWORK-CONFIGURATION DEVICE SUBNET-FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, configuration, device, subnetFile string) error {
	manager, err := kube.NewSubnetManager(ctx, "", kubeconfig, annotationPrefix, configuration, true)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	families, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	external, err := ipmatch.LookupExtIface(device, "", "", families, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	chosen, err := backend.NewManager(ctx, manager, external).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	network, err := chosen.RegisterNetwork(ctx, &group, config)
	if err != nil {
		return err
	}
	lease := network.Lease()
	err = manager.HandleSubnetFile(subnetFile, config, false, lease.Subnet, lease.IPv6Subnet, network.MTU())
	if err != nil {
		return err
	}
	group.Go(func() { network.Run(ctx) })
	err = manager.CompleteLease(ctx, lease, &group)
	group.Wait()
	return err
}
