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
	// RepeatAlone is Repeat for a flush of a single item: it may wait out a lock for longer.
	RepeatAlone bool
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
	items := make([]T, len(part))
	for i, waits := range part {
		items[i] = waits.item
	}
	err := w.flush(ctx, items)
	remedy := w.remedy(err)
	for attempt := 1; attempt < attempts && (remedy.Repeat || len(part) == 1 && remedy.RepeatAlone); attempt++ {
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
	}
	for _, waits := range part {
		waits.settle(err)
	}
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
