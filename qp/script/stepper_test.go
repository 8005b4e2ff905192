package script

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// play steps through a script and returns the packets that it has shown, with "lost" behind those that did not arrive.
func play(s *Script, lose func(Step) bool) (packets []string, err error) {
	t := s.Start(lose)
	for err == nil {
		var steps []Step
		steps, err = t.Step()
		for _, step := range steps {
			text := step.Text
			if step.Lost {
				text += " lost"
			}
			if step.Kind == Packet {
				packets = append(packets, text)
			}
		}
	}
	if _, again := t.Step(); again != err {
		return packets, errors.Join(again, errors.New("a step behind the end has another error"))
	}
	return packets, err
}

// TestStepAsWritten steps through all scripts, and loses the packets that they lose.
func TestStepAsWritten(t *testing.T) {
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := play(s, func(p Step) bool { return p.Lost }); err != io.EOF {
			t.Errorf("%s: got %v, want the end", name, err)
		}
	}
}

// TestStepDecides: a program loses packets that a script delivers, and the other way round.
func TestStepDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		steps  string
		lose   []int    // which packets, in the order in which lose is asked about them
		want   []string // packets
		failed string   // how the script fails if it is run as it is written
	}{
		{"a SEND is lost, and sent again after the ACK timeout", `
 connect
 left post send 1 len=10
 right post recv 1 len=10
 > SEND Only psn=100 AckReq 1[0:10]
 advance 67.108864ms
 > SEND Only psn=100 AckReq 1[0:10]
 right wc recv 1 SUCCESS len=10 data=1[0:10]
 < ACK psn=100 msn=1
 left wc send 1 SUCCESS`, []int{0},
			[]string{"SEND Only psn=100 AckReq 1[0:10] lost", "SEND Only psn=100 AckReq 1[0:10]", "ACK psn=100 msn=1"},
			"unclaimed before this step, right: < ACK psn=100"},
		{"the ACK arrives that the script loses", `
 connect
 left post send 1 len=10
 right post recv 1 len=10
 > SEND Only psn=100 AckReq 1[0:10]
 right wc recv 1 SUCCESS len=10 data=1[0:10]
 <x ACK psn=100 msn=1
 left wc send 1 SUCCESS`, nil,
			[]string{"SEND Only psn=100 AckReq 1[0:10]", "ACK psn=100 msn=1"}, "no completion came"},
		{"one of a run is lost", `
 connect mtu=256
 left post send 1 len=1024
 right post recv 1 len=1024
 > SEND First psn=100 1[0:256]
 > SEND Middle psn=101..102 1[256:768]
 > SEND Last psn=103 AckReq 1[768:1024]
 < NAK PSN sequence error psn=102 msn=0
 > SEND Middle psn=102 1[512:768]
 > SEND Last psn=103 AckReq 1[768:1024]
 right wc recv 1 SUCCESS len=1024 data=1[0:1024]
 < ACK psn=103 msn=1
 left wc send 1 SUCCESS`, []int{2},
			[]string{"SEND First psn=100 1[0:256]", "SEND Middle psn=101 1[256:512]",
				"SEND Middle psn=102 1[512:768] lost",
				"SEND Last psn=103 AckReq 1[768:1024]", "NAK PSN sequence error psn=102 msn=0",
				"SEND Middle psn=102 1[512:768]", "SEND Last psn=103 AckReq 1[768:1024]", "ACK psn=103 msn=1"},
			"the PSN is not 102 but 103; what came: < ACK psn=103"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse("t", "# T\ngroup: g\n\nWhy.\n\n"+c.steps)
			if err != nil {
				t.Fatal(err)
			}
			asked := -1
			got, err := play(s, func(Step) bool { asked++; return slices.Contains(c.lose, asked) })
			if err != io.EOF || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v; want %q and the end", got, err, c.want)
			}
			var f *Failure
			if err := s.Run(nil); !errors.As(err, &f) || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("as it is written: got %v, want %q", err, c.failed)
			}
		})
	}
}
