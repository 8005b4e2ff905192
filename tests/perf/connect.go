package perf

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// connectPort is the rdma_cm port that the far end of a connect job listens on.
const connectPort = 7471

// dialNear dials and disconnects, Depth at a time. For each connection there are a REQ, REP, RTU, DREQ and DREP, and a
// QP with its queues at both ends.
func dialNear(j *Job, p *peer) (Result, error) {
	dev, cm, err := openCM(j)
	if err != nil {
		return Result{}, err
	}
	defer dev.Close()
	defer cm.Close()
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	ctx, stop := context.WithTimeout(context.Background(), j.timeout())
	defer stop()
	var mu sync.Mutex // guards m and failed
	var failed error
	var dialing sync.WaitGroup
	for range j.Depth {
		dialing.Go(func() {
			for {
				err := comeAndGo(ctx, cm, j)
				mu.Lock()
				m.add(1)
				failed = errors.Join(failed, err)
				over := m.done || failed != nil
				mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	dialing.Wait()
	p.finish()
	if failed != nil {
		return Result{}, failed
	}
	return m.result().of(0, 5), nil
}

// acceptFar accepts connections, and closes those that the peer has ended.
func acceptFar(j *Job, p *peer) (Result, error) {
	dev, cm, err := openCM(j)
	if err != nil {
		return Result{}, err
	}
	defer dev.Close()
	defer cm.Close()
	l, err := cm.Listen(context.Background(), fmt.Sprintf(":%d", connectPort), rdmacm.ListenConfig{})
	if err != nil {
		return Result{}, err
	}
	go serve(l)
	return standBy(j, p)
}

func openCM(j *Job) (ib.Device, *rdmacm.CM, error) {
	dev, err := openDevice(j)
	if err != nil {
		return nil, nil, err
	}
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return dev, cm, nil
}

func comeAndGo(ctx context.Context, cm *rdmacm.CM, j *Job) error {
	c, err := cm.Dial(ctx, fmt.Sprintf("%v:%d", j.Peer, connectPort), rdmacm.Config{})
	if err != nil {
		return err
	}
	return errors.Join(c.Disconnect(ctx), c.Close())
}

// serve accepts until the listener is closed.
func serve(l *rdmacm.Listener) {
	for {
		c, err := l.Accept(context.Background())
		if errors.Is(err, ib.ErrClosed) {
			return
		}
		if err == nil {
			go func() {
				<-c.Done()
				_ = c.Close()
			}()
		}
	}
}
