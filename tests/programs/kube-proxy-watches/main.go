// Command kube-proxy-watches follows an API server as the kube-proxies of many nodes do: by client-go's informers of what
// cmd/kube-proxy/app/server.go watches, each node by a connection of its own. It says how far they are, as JSON, for each
// line of its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// The slice whose address says which change has arrived.
const marked = "marked"

// kube-proxy's configSyncPeriod.
const resync = 15 * time.Minute

type mark struct {
	count int
	last  int64
}

func (m mark) MarshalJSON() ([]byte, error) {
	return json.Marshal([]int64{int64(m.count), m.last})
}

type progress struct {
	mutex   sync.Mutex
	Synced  int          `json:"synced"`
	Marks   map[int]mark `json:"marks"`
	Lists   int          `json:"lists"`
	Removed int          `json:"removed"`
	Failure *string      `json:"failure"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: kube-proxy-watches KUBECONFIG NODE COUNT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, node, count string) error {
	number, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	all := &progress{Marks: map[int]mark{}}
	for range number {
		if err := all.follow(kubeconfig, node); err != nil {
			return err
		}
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		all.mutex.Lock()
		line, err := json.Marshal(all)
		all.mutex.Unlock()
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return input.Err()
}

// Starts the informers of one node.
func (p *progress) follow(kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	// client-go shares connections between configurations unless they have a dialer of their own.
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, resync)
	slices := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = "!" + corev1.IsHeadlessService
		}))
	services := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = "!service.kubernetes.io/service-proxy-name"
			options.FieldSelector = fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
		}))
	nodes := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
		}))
	factories := []informers.SharedInformerFactory{all, slices, services, nodes}
	informer := slices.Discovery().V1().EndpointSlices().Informer()
	synced := []cache.InformerSynced{
		informer.HasSynced,
		services.Core().V1().Services().Informer().HasSynced,
		all.Networking().V1().ServiceCIDRs().Informer().HasSynced,
		nodes.Core().V1().Nodes().Informer().HasSynced,
	}
	err = informer.SetWatchErrorHandler(func(_ *cache.Reflector, failure error) {
		said := failure.Error()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.Failure = &said
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    p.see,
		UpdateFunc: func(_, now any) { p.see(now) },
	})
	if err != nil {
		return err
	}
	for _, factory := range factories {
		factory.Start(context.Background().Done())
	}
	go func() {
		cache.WaitForCacheSync(context.Background().Done(), synced...)
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.Synced++
	}()
	return nil
}

// Notes which change of the marked slice has arrived.
func (p *progress) see(object any) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Name != marked || len(slice.Endpoints) == 0 || len(slice.Endpoints[0].Addresses) == 0 {
		return
	}
	address := net.ParseIP(slice.Endpoints[0].Addresses[0]).To4()
	var now unix.Timespec
	if address == nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	change := int(address[2])<<8 | int(address[3])
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.Marks[change] = mark{p.Marks[change].count + 1, now.Nano()}
}
