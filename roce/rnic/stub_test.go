//go:build !rnic || !cgo

package rnic

import (
	"errors"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestStub checks that the errors of a build without the tag say how to build with it.
func TestStub(t *testing.T) {
	_, openErr := Open("mlx5_0")
	_, listErr := Devices()
	for _, err := range []error{openErr, listErr} {
		if !errors.Is(err, ib.ErrNotSupported) || !strings.Contains(err.Error(), "-tags rnic") {
			t.Errorf("%v: want ErrNotSupported and the tag", err)
		}
	}
	if !strings.Contains(openErr.Error(), "mlx5_0") {
		t.Errorf("%v, want it to name the device", openErr)
	}
}
