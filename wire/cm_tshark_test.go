package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// field is a field in Wireshark's dissection: its name there, and a number, an
// address or bytes.
type field struct {
	name  string
	value any
}

// dissection returns the fields of a MAD that Wireshark has names for. It has none
// for MRA, SIDR_REQ and SIDR_REP. Of paths, version 4.0 reads flow label and rate
// wrongly: three bytes, or one, with the masks of four.
func dissection(h *MADHeader, m cmMessage, mad *[MADLen]byte) []field {
	out := []field{
		{"infiniband.mad.baseversion", h.BaseVersion}, {"infiniband.mad.mgmtclass", h.Class},
		{"infiniband.mad.classversion", h.ClassVersion},
		{"infiniband.mad.method", h.Method}, {"infiniband.mad.status", h.Status},
		{"infiniband.mad.transactionid", h.TID},
		{"infiniband.mad.attributeid", h.Attr}, {"infiniband.mad.attributemodifier", h.Modifier},
		{"infiniband.mad.data", mad[MADHeaderLen:]},
	}
	switch m := m.(type) {
	case *REQ:
		out = append(out, reqDissection(m)...)
	case *REJ:
		out = append(out, []field{
			{"infiniband.cm.rej.localcommid", m.LocalID}, {"infiniband.cm.rej.remotecommid", m.RemoteID},
			{"infiniband.cm.rej.msgrej", uint8(m.Message)}, {"infiniband.cm.rej.rejinfolen", len(m.Info)},
			{"infiniband.cm.rej.reason", uint16(m.Reason)},
			{"infiniband.cm.rej.ari", mad[MADHeaderLen+12 : MADHeaderLen+12+REJInfoLen]},
			{"infiniband.cm.rej.private", m.PrivateData}}...)
	case *REP:
		out = append(out, []field{
			{"infiniband.cm.rep", m.LocalID}, {"infiniband.cm.rep.remotecommid", m.RemoteID},
			{"infiniband.cm.rep.localqkey", m.QKey},
			{"infiniband.cm.rep.localqpn", uint32(m.QPN)}, {"infiniband.cm.rep.startpsn", uint32(m.StartingPSN)},
			{"infiniband.cm.rep.respres", m.ResponderResources}, {"infiniband.cm.rep.initdepth", m.InitiatorDepth},
			{"infiniband.cm.rep.tgtackdelay", m.TargetACKDelay}, {"infiniband.cm.rep.failoveracc", m.FailoverAccepted},
			{"infiniband.cm.rep.e2eflowctrl", bit(m.FlowControl)}, {"infiniband.cm.rep.rnrretrcount", m.RNRRetry},
			{"infiniband.cm.rep.srq", bit(m.SRQ)}, {"infiniband.cm.rep.localcaguid", m.CAGUID},
			{"infiniband.cm.rep.private", m.PrivateData}}...)
	case *RTU:
		out = append(out, []field{{"infiniband.cm.rtu.localcommid", m.LocalID},
			{"infiniband.cm.rtu.remotecommid", m.RemoteID}, {"infiniband.cm.rtu.private", m.PrivateData}}...)
	case *DREQ:
		out = append(out, []field{{"infiniband.cm.dreq.localcommid", m.LocalID},
			{"infiniband.cm.dreq.remotecommid", m.RemoteID}, {"infiniband.cm.req.remoteqpneecn", uint32(m.RemoteQPN)},
			{"infiniband.cm.dreq.private", m.PrivateData}}...)
	case *DREP:
		out = append(out, []field{{"infiniband.cm.drsp.localcommid", m.LocalID},
			{"infiniband.cm.drsp.remotecommid", m.RemoteID}, {"infiniband.cm.drsp.private", m.PrivateData}}...)
	}
	return out
}

func reqDissection(m *REQ) []field {
	p, a := &m.Primary, &m.Alternate
	out := []field{
		{"infiniband.cm.req", m.LocalID}, {"infiniband.cm.req.localcaguid", m.CAGUID},
		{"infiniband.cm.req.localqkey", m.QKey},
		{"infiniband.cm.req.localqpn", uint32(m.QPN)}, {"infiniband.cm.req.responderres", m.ResponderResources},
		{"infiniband.cm.req.initdepth", m.InitiatorDepth},
		{"infiniband.cm.req.remoteresptout", m.RemoteResponseTimeout},
		{"infiniband.cm.req.transpsvctype", m.Transport}, {"infiniband.cm.req.e2eflowctrl", bit(m.FlowControl)},
		{"infiniband.cm.req.startpsn", uint32(m.StartingPSN)},
		{"infiniband.cm.req.localresptout", m.LocalResponseTimeout},
		{"infiniband.cm.req.retrcount", m.RetryCount}, {"infiniband.cm.req.pkey", m.PKey},
		{"infiniband.cm.req.pppmtu", m.PathMTU.Code()},
		{"infiniband.cm.req.rdcexist", bit(m.RDCExists)}, {"infiniband.cm.req.rnrretrcount", m.RNRRetry},
		{"infiniband.cm.req.maxcmretr", m.MaxCMRetries}, {"infiniband.cm.req.srq", bit(m.SRQ)},
		{"infiniband.cm.req.ext_transport", m.ExtTransport},
		{"infiniband.cm.req.prim_locallid", p.LocalLID}, {"infiniband.cm.req.prim_remotelid", p.RemoteLID},
		{"infiniband.cm.req.prim_localgid", netip.AddrFrom16(p.LocalGID)},
		{"infiniband.cm.req.prim_remotegid", netip.AddrFrom16(p.RemoteGID)},
		{"infiniband.cm.req.prim_tfcclass", p.TrafficClass}, {"infiniband.cm.req.prim_hoplim", p.HopLimit},
		{"infiniband.cm.req.prim_sl", p.SL},
		{"infiniband.cm.req.prim_subnetlocal", bit(p.SubnetLocal)},
		{"infiniband.cm.req.prim_localacktout", p.AckTimeout},
		{"infiniband.cm.req.alt_locallid", a.LocalLID}, {"infiniband.cm.req.alt_remotelid", a.RemoteLID},
		{"infiniband.cm.req.alt_localgid", a.LocalGID[:]}, {"infiniband.cm.req.alt_remotegid", a.RemoteGID[:]},
		{"infiniband.cm.req.alt_tfcclass", a.TrafficClass}, {"infiniband.cm.req.alt_hoplim", a.HopLimit},
		{"infiniband.cm.req.alt_sl", a.SL},
		{"infiniband.cm.req.alt_subnetlocal", bit(a.SubnetLocal)}, {"infiniband.cm.req.alt_localacktout", a.AckTimeout},
	}
	_, port, ok := SplitServiceID(m.ServiceID)
	var h CMHeader
	if !ok || h.Decode(m.PrivateData) != nil {
		return append(out, field{"infiniband.cm.req.serviceid", m.ServiceID},
			field{"infiniband.cm.req.private", m.PrivateData})
	}
	family := "6"
	if h.Src.Is4() {
		family = "4"
	}
	return append(out, field{"infiniband.cm.req.serviceid.dport", port},
		field{"infiniband.cm.req.ip_cm.majv", 0}, field{"infiniband.cm.req.ip_cm.minv", 0},
		field{"infiniband.cm.req.ip_cm.ipv", family},
		field{"infiniband.cm.req.ip_cm.sport", h.SrcPort}, field{"infiniband.cm.req.ip_cm.sip" + family, h.Src.Addr()},
		field{"infiniband.cm.req.ip_cm.dip" + family, h.Dst.Addr()},
		field{"infiniband.cm.req.ip_cm.private", m.PrivateData[CMHeaderLen:]})
}

// text is the value in one form: numbers decimal, bytes in hexadecimal.
func (f field) text() string {
	switch v := f.value.(type) {
	case []byte:
		return fmt.Sprintf("%x", v)
	case CMAttr:
		return fmt.Sprint(uint16(v))
	}
	return fmt.Sprint(f.value)
}

// tsharkText brings what tshark prints into that form.
func tsharkText(s string) string {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil && len(s) < 20 {
		return fmt.Sprint(v)
	}
	return s
}

// madFrame returns a frame that carries a MAD from QP 1 to QP 1.
func madFrame(mad *[MADLen]byte) []byte {
	p := Packet{BTH: BTH{Opcode: UDSendOnly, PKey: ib.DefaultPKey, DestQP: ib.QPNGSI},
		DETH: DETH{QKey: 0x80010000, SrcQP: ib.QPNGSI}, Payload: mad[:]}
	f := Frame{EtherDst: [6]byte{2, 0, 0, 0, 0, 2}, EtherSrc: [6]byte{2, 0, 0, 0, 0, 1}}
	f.Outer = Outer{Src: ib.GID{0: 0xFD, 15: 1}, Dst: ib.GID{0: 0xFD, 15: 2}, SrcPort: 0xD872, DstPort: Port,
		HopLimit: 64}
	return encode(&f, &p)
}

// writeCapture writes a pcap file of frames.
func writeCapture(t *testing.T, path string, frames [][]byte) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := pcapgo.NewWriter(file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, b := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
}

// tsharkFields returns the values of fields in every packet of a file, and the
// last of each line, what tshark complains of.
func tsharkFields(t *testing.T, path string, names []string) (lines [][]string) {
	t.Helper()
	args := []string{"-n", "-r", path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"}
	for _, n := range append(slices.Clone(names), "_ws.malformed") {
		args = append(args, "-e", n)
	}
	cmd := exec.Command(require.Command(t, "tshark"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return lines
}

// Wireshark reads the MADs of Linux hosts as we do, and those that we make: some
// of each kind, with every field drawn, with and without the header of rdma_cm.
func TestTsharkCM(t *testing.T) {
	mads := madsOf(t, rpingPath)
	for a := range cmMessages() {
		gen := rapid.Custom(func(t *rapid.T) [MADLen]byte {
			f := fields{t}
			h := MADHeader{MADBaseVersion, MADClassCM, MADClassVersionCM, MADMethodSend, 0, f.u64(), a, f.u32()}
			m := f.message(a)
			if req, ok := m.(*REQ); ok {
				req.ServiceID |= 1 << 63 // none of rdma_cm
				if f.bool() {
					ip := CMHeader{Src: f.gid(), Dst: f.gid(), SrcPort: uint16(f.bits(16))}
					req.ServiceID, req.PrivateData = ib.PortSpaceTCP.ServiceID(uint16(f.bits(16))),
						make([]byte, REQPrivateLen)
					ip.Put(req.PrivateData)
				}
			}
			return put(&h, m)
		})
		for seed := range 12 {
			mad := gen.Example(seed)
			mads = append(mads, &mad)
		}
	}
	var frames [][]byte
	var want [][]field
	var names []string
	for _, mad := range mads {
		frames = append(frames, madFrame(mad))
		var h MADHeader
		h.Decode(mad)
		m := cmMessages()[h.Attr]
		m.Decode(mad)
		all := dissection(&h, m, mad)
		for _, f := range all {
			names = append(names, f.name)
		}
		want = append(want, all)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	path := filepath.Join(t.TempDir(), "cm.pcap")
	writeCapture(t, path, frames)
	lines := tsharkFields(t, path, names)
	if len(lines) != len(mads) {
		t.Fatalf("tshark prints %d packets, want %d", len(lines), len(mads))
	}
	for i, line := range lines {
		for _, f := range want[i] {
			at, _ := slices.BinarySearch(names, f.name)
			if got := tsharkText(line[at]); got != f.text() {
				t.Errorf("MAD %d: %s is %q in tshark, want %q as here", i, f.name, got, f.text())
			}
		}
		if bad := line[len(names)]; bad != "" {
			t.Errorf("MAD %d: tshark says %q, want nothing\n% x", i, bad, *mads[i])
		}
	}
}
