package client

// turn is a mutex that goroutines hold while they wait for the daemon. They wait for it on a channel, so that in a
// simulation (testing/synctest) the limit of time of the holder's request comes.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits until nobody else has the turn, and takes it.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it back.
func (t turn) Unlock() { <-t }
