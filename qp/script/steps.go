package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
)

// PSNs and QP numbers of the two sides. A second QP has the next QP number.
const (
	leftPSN, rightPSN = 100, 500
	leftQPN, rightQPN = 0x11, 0x22
)

// setup begins a scene with one QP, or with two of one host.
func (r *runner) setup(_ *endpoint, a *args) error {
	cfg := defaults(leftPSN, rightPSN)
	text := strings.Join(a.words, " ")
	cfg.take(a, "")
	if err := r.newScene(true); err != nil {
		return err
	}
	names := []string{"us"}
	if cfg.qps == 2 {
		names = []string{"first", "second"}
	}
	h, err := newHost("us", leftQPN)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := r.addEnd(h, name, leftQPN+ib.QPN(i), rightQPN+ib.QPN(i), cfg); err != nil {
			return err
		}
	}
	r.show(Step{Kind: Scene, Text: text, Sides: []string{"this end", "peer"}})
	return nil
}

// connect begins a scene with two connected QPs.
func (r *runner) connect(_ *endpoint, a *args) error {
	cfgs := []config{defaults(leftPSN, rightPSN), defaults(rightPSN, leftPSN)}
	names := []string{"left", "right"}
	nums := []ib.QPN{leftQPN, rightQPN}
	text := strings.Join(a.words, " ")
	for i, name := range names {
		cfgs[i].take(a, name+".")
	}
	both := *a
	cfgs[0].take(&both, "")
	cfgs[1].take(a, "")
	cfgs[0].attr.RQPSN, cfgs[1].attr.RQPSN = cfgs[1].attr.SQPSN, cfgs[0].attr.SQPSN
	if cfgs[1].typ == ib.XRCINI {
		cfgs[1].typ = ib.XRCTGT
	}
	if err := r.newScene(false); err != nil {
		return err
	}
	for i, name := range names {
		h, err := newHost(name, uint8(nums[i]))
		if err != nil {
			return err
		}
		if err := r.addEnd(h, name, nums[i], nums[1-i], cfgs[i]); err != nil {
			return err
		}
	}
	r.show(Step{Kind: Scene, Text: text, Sides: names})
	return nil
}

// newScene ends the scene before and begins one without QPs.
func (r *runner) newScene(scripted bool) error {
	if err := r.endScene(); err != nil {
		return err
	}
	r.now, r.ends, r.wire, r.scripted = 0, nil, nil, scripted
	r.areas, r.messages = map[string]*area{}, map[string]int{}
	return nil
}

// addEnd makes a QP of the scene.
func (r *runner) addEnd(h *host, name string, num, peer ib.QPN, cfg config) error {
	e, err := newEndpoint(h, name, num, peer, cfg)
	if err != nil {
		return err
	}
	r.ends = append(r.ends, e)
	return e.start(r.now)
}

// newArea adds a named area. Addresses leave gaps between areas, so that an access
// beyond the end of one does not hit the next.
func (r *runner) newArea(name string, size int) (*area, error) {
	if r.areas[name] != nil {
		return nil, fmt.Errorf("%s exists already", name)
	}
	if size > maxArea {
		return nil, fmt.Errorf("%d bytes are more than %d", size, maxArea)
	}
	n := len(r.areas) + 1
	a := &area{name: name, size: size, addr: uint64(n) * 2 * maxArea, key: ib.Key(0xFE000000 + n)}
	r.areas[name] = a
	return a, nil
}

// addRegion registers memory for the peer to use.
func (r *runner) addRegion(e *endpoint, a *args) error {
	name := a.next()
	peers := name == "peer"
	if peers {
		name = a.next()
	}
	mem, err := r.newArea(name, int(a.num("len", 0, 32)))
	if err != nil || peers {
		return err
	}
	access := ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	if v, ok := a.value("access"); ok {
		if access, err = parseAccess(v); err != nil {
			return err
		}
	}
	if err := e.register(mem, access, a.flag("late"), e.domain(a)); err != nil {
		return err
	}
	fill(mem.mem, name, 0)
	mem.want = append([]byte(nil), mem.mem...)
	return nil
}

// deregister revokes a region's key.
func (r *runner) deregister(e *endpoint, a *args) error {
	mem := r.areas[a.next()]
	if mem == nil || mem.region == nil {
		return fmt.Errorf("there is no such region")
	}
	return e.table.Deregister(mem.region)
}

// fault makes slow memory fail from now on.
func (r *runner) fault(_ *endpoint, a *args) error {
	mem := r.areas[a.next()]
	if mem == nil || mem.slow == nil {
		return fmt.Errorf("no region of this name was made with late")
	}
	mem.slow.Fail = mr.FaultBounds
	return nil
}

// set writes a number to memory, as the application may at any time.
func (r *runner) set(_ *endpoint, a *args) error {
	mem, off, err := r.address(a.next())
	if err != nil {
		return err
	}
	if sign := a.next(); sign != "=" || mem.mem == nil || off < 0 || off > mem.size-8 {
		return fmt.Errorf("write: set R+0 = 41, for 8 bytes of a region that is ours")
	}
	v, err := strconv.ParseUint(a.next(), 0, 64)
	copy(mem.mem[off:], number(v))
	copy(mem.want[off:], number(v))
	return err
}

// address parses "R+1024".
func (r *runner) address(text string) (*area, int, error) {
	name, offset, _ := strings.Cut(text, "+")
	a := r.areas[name]
	off, err := strconv.Atoi(offset)
	if a == nil || err != nil {
		return nil, 0, fmt.Errorf("%q is no address, such as R+0", text)
	}
	return a, off, nil
}

// addressText formats an address as in steps.
func (r *runner) addressText(va uint64, key ib.Key) string {
	for name, a := range r.areas {
		if a.key == key {
			return fmt.Sprintf("%s+%d", name, int64(va-a.addr))
		}
	}
	return fmt.Sprintf("%#x rkey=%#x", va, uint32(key))
}

// arm arms a completion queue.
func (r *runner) arm(e *endpoint, a *args) error {
	q := map[string]*completions{"send": &e.sendCQ, "recv": &e.recvCQ}[a.next()]
	if q == nil {
		return fmt.Errorf("arm send or recv?")
	}
	q.app.Arm(a.flag("solicited"))
	return nil
}

// advance advances the time. It handles deadlines on the way; if one of them causes an
// output, the step fails, and the script must advance to that deadline first.
func (r *runner) advance(_ *endpoint, a *args) error {
	d, err := time.ParseDuration(a.next())
	if err != nil || d <= 0 {
		return fmt.Errorf("advance by how much? such as 67ms")
	}
	if err := r.settle(); err != nil {
		return err
	}
	target := r.now + ib.Instant(d)
	for {
		next := driver.Never
		for _, e := range r.ends {
			next = min(next, e.qp.Deadline())
		}
		if next >= target {
			break
		}
		from := r.now
		r.now = next
		for _, e := range r.ends {
			e.expire(r.now)
		}
		if err := r.settle(); err != nil {
			return fmt.Errorf("a deadline lies on the way, after %v: %w", time.Duration(next-from), err)
		}
	}
	r.now = target
	for _, e := range r.ends {
		e.expire(r.now)
	}
	return nil
}

// expire calls HandleTimeout if the deadline has passed.
func (e *endpoint) expire(now ib.Instant) {
	if e.qp.Deadline() <= now {
		e.qp.HandleTimeout(now)
		e.input()
	}
}

// modify changes state and attributes.
func (r *runner) modify(e *endpoint, a *args) error {
	to, err := parseState(a.next())
	if err != nil {
		return err
	}
	refused, err := takeRefused(a)
	if err != nil {
		return err
	}
	cfg := e.cfg
	mask := ib.AttrState
	if a.flag("defaults") {
		mask = ib.Required(e.cfg.typ, to)
	}
	mask |= cfg.take(a, "")
	if a.flag("notify") {
		mask |= ib.AttrSQDNotify
		cfg.attr.SQDNotify = true
	}
	for _, change := range []struct {
		key string
		set func(bits ib.QPAttrMask)
	}{
		{"with", func(bits ib.QPAttrMask) { mask |= bits }},
		{"without", func(bits ib.QPAttrMask) { mask &^= bits }},
	} {
		if v, ok := a.value(change.key); ok {
			bits, err := parseAttrs(v)
			if err != nil {
				return err
			}
			change.set(bits)
		}
	}
	err = e.modify(r.now, to, &cfg.attr, mask)
	if refused == "" {
		e.cfg = cfg
		return err
	}
	if err == nil || !strings.Contains(err.Error(), refused) {
		return fmt.Errorf("the error should say %q, but it is: %v", refused, err)
	}
	return nil
}

// takeRefused takes "refused" and the text after it.
func takeRefused(a *args) (string, error) {
	for i, w := range a.words {
		if w == "refused" {
			text := strings.Join(a.words[i+1:], " ")
			a.words = a.words[:i]
			if text == "" {
				return "", fmt.Errorf("refused with what text?")
			}
			return text, nil
		}
	}
	return "", nil
}

// placed ends a write to late memory.
func (r *runner) placed(e *endpoint, a *args) error {
	n := int(a.num("nth", 1, 16)) - 1
	if n < 0 || n >= len(e.late) {
		return fmt.Errorf("%d writes are under way", len(e.late))
	}
	p := e.late[n]
	e.late = append(e.late[:n:n], e.late[n+1:]...)
	var old uint64
	err := error(mr.FaultBounds)
	if !a.flag("fails") {
		old, err = p.Do()
	}
	e.qp.Placed(r.now, p.ID, old, err)
	e.input()
	return nil
}

// fetched ends a read of late memory.
func (r *runner) fetched(e *endpoint, a *args) error {
	n := int(a.num("nth", 1, 16)) - 1
	if n < 0 || n >= len(e.reads) {
		return fmt.Errorf("%d reads are under way", len(e.reads))
	}
	f := e.reads[n]
	e.reads = append(e.reads[:n:n], e.reads[n+1:]...)
	err := error(mr.FaultBounds)
	if !a.flag("fails") {
		err = f.Do()
	}
	e.qp.Fetched(r.now, f.ID, err)
	e.input()
	return nil
}

// canPost reports whether the state accepts a request.
func canPost(s ib.QPState, recv bool) bool {
	if recv {
		return qp.CanPostRecv(s)
	}
	return qp.CanPostSend(s)
}
