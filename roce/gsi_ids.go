package roce

import (
	"container/list"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Bounds of idTable.
const (
	maxIDs   = 1 << 17
	maxAsked = 1 << 12 // requests of peers, for one QP

	// idRest is how long an ID stays its QP's when its connection is over: copies of the
	// last messages may come. Timewait of package cm takes 4 s at most.
	idRest ib.Instant = 10e9
)

// commID is a communication ID or Request ID that is in use between this port and a
// peer: ours, or with theirs the peer's in a request to us.
type commID struct {
	peer   ib.GID
	id     uint32
	theirs bool
}

// idStage is where a connection stands, in the order in which IDs are given up when
// there are too many.
type idStage uint8

const (
	idOver  idStage = iota // rests
	idAsked                // of a peer: its request is not over
	idOpen                 // half open, or closing
	idFirm                 // established
	numIDStages
)

// idRecord says whose an ID is.
type idRecord struct {
	id      commID
	qp      *QP
	service uint64 // theirs: what the request was for
	at      ib.GID // theirs: the address that it was sent to
	served  bool   // theirs: by qp, when it came
	peerID  uint32 // ours: the peer's ID of the connection, 0 while it is not known
	stage   idStage
	elem    *list.Element // in the list of QP and stage
	until   ib.Instant    // idOver: when it ends
}

// idLists holds the records of one QP by stage, each list in the order of change.
type idLists struct {
	stages [numIDStages]list.List
	n      int
}

// idTable says whose the communication IDs are. It is bounded; when it is full the QP
// that has most gives up one, so that no QP can take the others' place. A message for
// an ID that was given up finds its way again when the QP next sends with it.
type idTable struct {
	records   map[commID]*idRecord
	byQP      map[*QP]*idLists
	forgotten *uint64 // counts those that were given up while in use
}

func (t *idTable) init(forgotten *uint64) {
	t.records, t.byQP, t.forgotten = map[commID]*idRecord{}, map[*QP]*idLists{}, forgotten
}

// get returns the record of an ID, nil if it is nobody's.
func (t *idTable) get(now ib.Instant, id commID) *idRecord {
	r := t.records[id]
	if r != nil && r.stage == idOver && r.until <= now {
		t.remove(r)
		return nil
	}
	return r
}

// add makes an ID q's.
func (t *idTable) add(now ib.Instant, id commID, q *QP, stage idStage) *idRecord {
	l := t.byQP[q]
	if l == nil {
		l = &idLists{}
		t.byQP[q] = l
	}
	over := &l.stages[idOver]
	for e := over.Front(); e != nil && e.Value.(*idRecord).until <= now; e = over.Front() {
		t.remove(e.Value.(*idRecord))
	}
	if stage == idAsked && l.stages[idAsked].Len() == maxAsked {
		t.forget(l.stages[idAsked].Front().Value.(*idRecord))
	}
	if len(t.records) == maxIDs {
		t.makeRoom()
	}
	r := &idRecord{id: id, qp: q, stage: stage}
	r.elem = l.stages[stage].PushBack(r)
	l.n++
	t.records[id] = r
	return r
}

// makeRoom takes an ID from the QP that has most.
func (t *idTable) makeRoom() {
	var most *idLists
	for _, l := range t.byQP {
		if most == nil || l.n > most.n {
			most = l
		}
	}
	for i := range most.stages {
		if e := most.stages[i].Front(); e != nil {
			t.forget(e.Value.(*idRecord))
			return
		}
	}
}

// forget removes a record that may be in use.
func (t *idTable) forget(r *idRecord) {
	if r.stage != idOver {
		*t.forgotten++
	}
	t.remove(r)
}

// enter changes the stage of a record.
func (t *idTable) enter(now ib.Instant, r *idRecord, stage idStage) {
	l := t.byQP[r.qp]
	l.stages[r.stage].Remove(r.elem)
	r.stage, r.until = stage, now+idRest
	r.elem = l.stages[stage].PushBack(r)
}

func (t *idTable) remove(r *idRecord) {
	l := t.byQP[r.qp]
	l.stages[r.stage].Remove(r.elem)
	l.n--
	delete(t.records, r.id)
}

// drop forgets all IDs of a QP that ends.
func (t *idTable) drop(q *QP) {
	if l := t.byQP[q]; l != nil {
		for i := range l.stages {
			for e := l.stages[i].Front(); e != nil; e = e.Next() {
				delete(t.records, e.Value.(*idRecord).id)
			}
		}
		delete(t.byQP, q)
	}
}

// said learns from a message that q sends with its ID; r is that of the ID, nil if
// it is new.
func (t *idTable) said(now ib.Instant, r *idRecord, id commID, q *QP, m *message) {
	stage := idOpen
	switch m.attr {
	case wire.AttrREJ, wire.AttrDREP: // the last of a connection
		if r != nil {
			t.enter(now, r, idOver)
		}
		return
	case wire.AttrRTU:
		stage = idFirm
	case wire.AttrDREQ:
	default:
		if r != nil && r.stage == idFirm {
			stage = idFirm
		}
	}
	if r == nil {
		r = t.add(now, id, q, stage)
	} else {
		t.enter(now, r, stage)
	}
	if m.remote != 0 {
		r.peerID = m.remote
	}
}

// answered learns that the QP of r has sent an answer to the request.
func (t *idTable) answered(now ib.Instant, r *idRecord, m *message) {
	if m.attr == wire.AttrREJ || m.attr == wire.AttrSIDRREP {
		t.enter(now, r, idOver)
	} else {
		t.enter(now, r, idAsked)
	}
}

// heard learns from a message that has come for the QP of r, and names r's ID. One
// that ends the connection must name the peer's ID too, if that is known.
func (t *idTable) heard(now ib.Instant, r *idRecord, m *message) {
	switch m.attr {
	case wire.AttrRTU:
		t.enter(now, r, idFirm)
		if theirs := t.get(now, commID{peer: r.id.peer, id: m.local, theirs: true}); theirs != nil && theirs.qp == r.qp {
			t.enter(now, theirs, idOver)
		}
	case wire.AttrREJ, wire.AttrDREP, wire.AttrSIDRREP:
		if r.peerID == 0 || r.peerID == m.local {
			t.enter(now, r, idOver)
		}
	}
}
