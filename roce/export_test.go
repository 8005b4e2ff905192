package roce

// StandsAside reports whether the device's goroutine leaves the work to who polls.
func (d *Device) StandsAside() bool { return d.shard.poller.aside.Load() }
