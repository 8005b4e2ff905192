package ib

import (
	"context"
	"iter"
)

// WaitOne waits for one completion, which must be on a CQ without a channel. The error is that of CQ.Wait, or, if the
// request has failed, a *WCError, which names the status; then the WC is valid too.
func WaitOne(ctx context.Context, cq CQ) (WC, error) {
	var wcs [1]WC
	if _, err := cq.Wait(ctx, wcs[:]); err != nil {
		return WC{}, err
	}
	return wcs[0], wcs[0].Err()
}

// Completions returns an iterator over the completions of a CQ without a channel, which waits for them. A request that
// has failed is yielded with its *WCError, and the iteration goes on. If CQ.Wait fails, as it does when ctx ends, that
// error is yielded with a zero WC, and the iteration is over. A loop that is left early loses no completion.
func Completions(ctx context.Context, cq CQ) iter.Seq2[WC, error] {
	return func(yield func(WC, error) bool) {
		var wcs [1]WC // no more at a time: what is polled and not yielded would be lost
		for {
			if _, err := cq.Wait(ctx, wcs[:]); err != nil {
				yield(WC{}, err)
				return
			}
			if !yield(wcs[0], wcs[0].Err()) {
				return
			}
		}
	}
}
