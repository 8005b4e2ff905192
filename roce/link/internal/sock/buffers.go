package sock

// Buffers are the memory into which a Batch receives: one buffer for each message.
type Buffers struct {
	batch *Batch
	index int // of the buffer among those of its message
	all   [][]byte
	used  int // how many messages the last Recv of the link has filled
}

// NewBuffers gives all messages of b a buffer of size bytes, as buffer index of each.
func NewBuffers(b *Batch, index, size int) *Buffers {
	r := &Buffers{batch: b, index: index, all: make([][]byte, b.Len())}
	for i := range r.all {
		r.renew(i, size)
	}
	return r
}

func (r *Buffers) renew(i, size int) {
	r.all[i] = make([]byte, size)
	r.batch.SetBuf(i, r.index, r.all[i])
}

// At returns the buffer of message i.
func (r *Buffers) At(i int) []byte { return r.all[i] }

// Used notes that the first n messages are filled.
func (r *Buffers) Used(n int) { r.used = n }

// Keep leaves the buffers of the messages that are filled to those who have their frames, and replaces them.
func (r *Buffers) Keep() {
	for i := range r.used {
		r.renew(i, len(r.all[i]))
	}
	r.used = 0
}
