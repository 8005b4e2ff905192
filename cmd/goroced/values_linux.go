package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/completion"
	"github.com/goroce/goroce/cmd/goroced/internal/top"
)

// patience is how long a shell waits for a daemon that does not answer.
const patience = 500 * time.Millisecond

func init() {
	values["columns"] = func() (list []completion.Candidate) {
		for _, name := range top.Columns() {
			list = append(list, completion.Candidate{Word: name, Help: "column " + name})
		}
		return list
	}
	values["devices"] = func() (list []completion.Candidate) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		all, _ := admin.NewClient("").Devices(ctx) // without a daemon there is nothing to offer
		for _, d := range all {
			list = append(list, completion.Candidate{Word: d.Name, Help: d.State})
		}
		return list
	}
	values["qps"] = func() (list []completion.Candidate) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		all, _ := admin.NewClient("").QPs(ctx)
		for _, q := range all {
			if q.QPN != 0 {
				list = append(list, completion.Candidate{Word: fmt.Sprintf("%#x", q.QPN), Help: q.Type + " " + q.State +
					" of " + q.Comm})
			}
		}
		return list
	}
}
