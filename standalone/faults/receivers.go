package main

import (
	"fmt"

	"github.com/everpost/everpost/internal/receivertest"
)

// receivers are those of a run, one for each endpoint, behind a proxy each.
type receivers struct {
	all   [endpoints]*receivertest.Receiver
	links [endpoints]*link
}

// startReceivers starts the receivers of a plan. What arrives is added to the ledger.
func startReceivers(p *plan, l *ledger) (*receivers, error) {
	r := &receivers{}
	for i := range r.all {
		one, err := receivertest.Start(receivertest.Options{
			Addr: ownAddress(), OnRequest: func(request receivertest.Request, s receivertest.Step) { l.arrive(i, request, s) },
		})
		if err != nil {
			r.stop()
			return nil, fmt.Errorf("start the receiver of endpoint %d: %w", i, err)
		}
		r.all[i] = one
		for _, path := range []string{"/hook", "/moved"} {
			one.Script(path, p.scripts[i]...)
		}
		if r.links[i], err = newLink("receiver", one.Addr().String()); err != nil {
			r.stop()
			return nil, err
		}
	}
	return r, nil
}

func (r *receivers) url(endpoint int) string { return "http://" + r.links[endpoint].address() }

func (r *receivers) stop() {
	for i := range r.all {
		if r.links[i] != nil {
			r.links[i].stop()
		}
		if r.all[i] != nil {
			r.all[i].Stop()
		}
	}
}
