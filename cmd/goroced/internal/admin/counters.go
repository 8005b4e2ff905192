package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Counter is a named figure.
type Counter struct {
	Name  string
	Value uint64
}

// Counters are the figures of a device, in the order and by the names of rxe's
// hw_counters where it has them. In JSON they are one object.
type Counters []Counter

// MarshalJSON is json.Marshaler's. It keeps the order.
func (c Counters) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, counter := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%d", counter.Name, counter.Value)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON is json.Unmarshaler's. It keeps the order.
func (c *Counters) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if brace, err := d.Token(); err != nil || brace != json.Delim('{') {
		return fmt.Errorf("counters: %v in place of an object: %w", brace, err)
	}
	*c = nil
	for d.More() {
		name, err := d.Token() // a string: what follows a brace or a comma
		if err != nil {
			return err
		}
		counter := Counter{Name: fmt.Sprint(name)}
		if err := d.Decode(&counter.Value); err != nil {
			return fmt.Errorf("counter %s: %w", counter.Name, err)
		}
		*c = append(*c, counter)
	}
	return nil
}

// Since returns what was added since before. Of a daemon that began anew meanwhile, that
// is everything.
func (c Counters) Since(before Counters) Counters {
	old := map[string]uint64{}
	for _, counter := range before {
		old[counter.Name] = counter.Value
	}
	added := make(Counters, len(c))
	for i, counter := range c {
		added[i] = counter
		if was := old[counter.Name]; was <= counter.Value {
			added[i].Value -= was
		}
	}
	return added
}
