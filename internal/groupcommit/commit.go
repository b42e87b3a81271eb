package groupcommit

import (
	"context"
	"time"
)

// Remedy is what helps after an error of a flush. The zero value is nothing: every item of the
// flush gets the error.
type Remedy struct {
	// Repeat: the same flush may succeed the next time, after a deadlock for instance.
	Repeat bool
	// Locked: another transaction has locked what some items need. They are written apart, as Config.Apart says; without it, a flush of a
	// single item is repeated, to wait out the lock for longer.
	Locked bool
	// Split: one item may be the cause, so that the others are written without it.
	Split bool
}

const (
	flushTimeout = 15 * time.Second // one batch with all its repetitions and parts
	attempts     = 5                // of a flush that may be repeated
)

// commit writes a batch and settles its items.
func (w *Writer[T]) commit(batch []*waiting[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	w.commitPart(ctx, batch)
}

func (w *Writer[T]) commitPart(ctx context.Context, part []*waiting[T]) {
	items := itemsOf(part)
	err := w.flush(ctx, items)
	remedy := w.remedy(err)
	if remedy.Locked {
		if free, found := w.setApart(ctx, part, err); found {
			if len(free) > 0 {
				w.commitPart(ctx, free)
			}
			return
		}
	}
	for attempt := 1; attempt < attempts && (remedy.Repeat || len(part) == 1 && remedy.Locked); attempt++ {
		err = w.flush(ctx, items)
		remedy = w.remedy(err)
	}
	if remedy.Split && len(part) > 1 {
		// Halves, until the item that cannot be written is alone and harms no other. The
		// deadline is that of the whole batch: it outlasts the log2(200) ≈ 8 lock timeouts
		// of one such item, and the repetitions of it alone, twice over.
		w.commitPart(ctx, part[:len(part)/2])
		w.commitPart(ctx, part[len(part)/2:])
		return
	}
	if err != nil {
		err = w.config.Translate(err)
	} else {
		w.written(part)
	}
	for _, waits := range part {
		waits.settle(err)
	}
}

func itemsOf[T any](part []*waiting[T]) []T {
	items := make([]T, len(part))
	for i, waits := range part {
		items[i] = waits.item
	}
	return items
}

func (w *Writer[T]) flush(ctx context.Context, items []T) error {
	if w.config.Observer == nil {
		return w.config.Flush(ctx, items)
	}
	began := time.Now()
	err := w.config.Flush(ctx, items)
	w.config.Observer.Flushed(len(items), time.Since(began), err)
	return err
}

func (w *Writer[T]) remedy(err error) Remedy {
	if err == nil {
		return Remedy{}
	}
	return w.config.Classify(err)
}
