package admin

import "testing"

// TestCountersInJSON: they keep their order, and an error says what is wrong.
func TestCountersInJSON(t *testing.T) {
	var c Counters
	if err := c.UnmarshalJSON([]byte(`{"b": 2, "a": 1}`)); err != nil || len(c) != 2 || c[0] != (Counter{"b", 2}) ||
		c[1] != (Counter{"a", 1}) {
		t.Errorf("%v, %v; want b 2 and a 1, in this order", c, err)
	}
	for text, want := range map[string]string{
		`[]`:        "counters: [ in place of an object",
		``:          "counters: EOF",
		`{"a": []}`: "counter a: json: cannot unmarshal array into Go value of type uint64",
	} {
		if err := c.UnmarshalJSON([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
