package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// profile repeats the work on the installation while profiles of it are taken. It runs after the measurement, because
// profiling costs time.
func (b *bench) profile(ctx context.Context, in *instance, w work) error {
	taken, err := b.takeProfiles(ctx, in, w.name)
	if err != nil {
		return err
	}
	for taken.underWay.Load() > 0 { // complete each load, so that nothing arrives afterwards
		l, err := b.post(ctx, in, w)
		if err != nil {
			return errors.Join(err, taken.Wait())
		}
		b.receiver.close(l)
	}
	return taken.Wait() //nolint:wrapcheck // says what it did
}

// profiles are being taken.
type profiles struct {
	*errgroup.Group

	underWay atomic.Int32
}

// takeProfiles begins to take profiles of CPU time and of allocations, <work>-<kind>-<round>.pprof, if they are wanted.
func (b *bench) takeProfiles(ctx context.Context, in *instance, name string) (*profiles, error) {
	if b.profiles == "" {
		return &profiles{Group: &errgroup.Group{}}, nil
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil { //nolint:gosec // nothing secret
		return nil, fmt.Errorf("make a directory for profiles: %w", err)
	}
	b.sayf("profiles, %s", b.size.profile)
	group, ctx := errgroup.WithContext(ctx)
	taken := &profiles{Group: group}
	for kind, path := range map[string]string{"cpu": "profile", "allocs": "allocs"} {
		taken.underWay.Add(1)
		group.Go(func() error {
			defer taken.underWay.Add(-1)
			file := filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%d.pprof", name, kind, b.round))
			return in.saveProfile(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%.0f", path, b.size.profile.Seconds()), file)
		})
	}
	return taken, nil
}

// saveProfile writes a response of the admin listener into a file.
func (in *instance) saveProfile(ctx context.Context, path, name string) error {
	response, err := in.Admin(ctx, path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	file, err := os.Create(name) //nolint:gosec // the user says where
	if err != nil {
		return fmt.Errorf("save a profile: %w", err)
	}
	_, err = io.Copy(file, response.Body)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("save a profile: %w", err)
	}
	return nil
}
