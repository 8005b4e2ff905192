package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Counter is a named counter.
type Counter struct {
	Name  string
	Value uint64
}

// Counters are the counters of a device, with the order and names of rdma_rxe's hw_counters where it has them. In JSON
// they are one object.
type Counters []Counter

// Names of counters that rdma_rxe's hw_counters do not have: bytes of packets, from the BTH to the ICRC.
const (
	SentBytes = "sent_bytes"
	RcvdBytes = "rcvd_bytes"
)

// get returns the value of a counter, 0 if there is none of that name.
func (c Counters) get(name string) uint64 {
	for _, counter := range c {
		if counter.Name == name {
			return counter.Value
		}
	}
	return 0
}

// MarshalJSON implements json.Marshaler. It keeps the order.
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

// UnmarshalJSON implements json.Unmarshaler. It keeps the order.
func (c *Counters) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	brace, err := d.Token()
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	if brace != json.Delim('{') {
		return fmt.Errorf("counters: %v in place of an object", brace)
	}
	*c = nil
	for d.More() {
		name, err := d.Token() // after a brace or a comma it is always a string
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

// Since returns the difference to before. A counter that is lower than before, as after a restart of the daemon, counts
// from 0.
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
