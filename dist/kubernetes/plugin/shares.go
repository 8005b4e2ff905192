package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// shares are the devices that the kubelet sees.
type shares struct {
	n int

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed by the next change of healthy
}

func newShares(n int) *shares { return &shares{n: n, changed: make(chan struct{})} }

// id names a share.
func id(i int) string { return fmt.Sprintf("share-%d", i) }

// has reports whether there is a share of this name.
func (s *shares) has(name string) bool {
	i, err := strconv.Atoi(strings.TrimPrefix(name, "share-"))
	return err == nil && i >= 0 && i < s.n && name == id(i)
}

// set sets the health of all shares, and wakes those who wait for a change.
func (s *shares) set(healthy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healthy == healthy {
		return
	}
	s.healthy = healthy
	close(s.changed)
	s.changed = make(chan struct{})
}

// list returns all shares as they are, and what will be closed when that changes.
func (s *shares) list() (*kubelet.ListAndWatchResponse, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	health := kubelet.Unhealthy
	if s.healthy {
		health = kubelet.Healthy
	}
	r := &kubelet.ListAndWatchResponse{}
	for i := range s.n {
		r.Devices = append(r.Devices, &kubelet.Device{ID: id(i), Health: health})
	}
	return r, s.changed
}
