// Command etcd is etcd's own program: built where it lies, it would be called "server".
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
