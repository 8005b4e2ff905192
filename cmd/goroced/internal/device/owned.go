package device

import (
	"errors"
	"io"
	"slices"
)

// Owned are the objects that a tool has on a device, in the order of their creation.
type Owned []io.Closer

// Own adds an object.
func (o *Owned) Own(c io.Closer) { *o = append(*o, c) }

// Close closes the objects, last first.
func (o *Owned) Close() error {
	var errs []error
	for _, c := range slices.Backward(*o) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
