//go:build !rnic || !cgo

package rnic

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Open fails: this program was built without libibverbs.
func Open(name string) (ib.Device, error) {
	return nil, fmt.Errorf("open RDMA device %q: %w", name, errNotBuilt)
}

// Devices fails: this program was built without libibverbs.
func Devices() ([]string, error) {
	return nil, fmt.Errorf("list RDMA devices: %w", errNotBuilt)
}

var errNotBuilt = fmt.Errorf("%w by this program: "+
	"build it with CGO_ENABLED=1 go build -tags rnic, which takes libibverbs-dev and librdmacm-dev", ib.ErrNotSupported)
