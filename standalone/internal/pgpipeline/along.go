package pgpipeline

import "context"

// Along is what goes along with the first statement that a transaction sends. One is for one transaction, and not safe
// for concurrent use.
type Along struct {
	// Queries are those that the transaction is going to run. Each is sent once, in this order; its answer is given out
	// when the same is asked for, unless something was written by then that may have changed it. So rows are locked
	// earlier than they are asked for.
	Queries []Query

	held   []statement
	stored bool // with a transaction that was committed
}

// Query is one that only reads, or locks what it reads.
type Query struct {
	Text string
	Args []any
}

type (
	holdKey struct{}
	takeKey struct{}
)

// Hold returns a context in which statements are held until a transaction takes them along, where they would wait in a
// transaction: single ones, and those of a transaction of which all would. Others are executed as ever.
func (a *Along) Hold(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdKey{}, a)
}

// Take returns a context in which a transaction takes everything along: what is held comes before its own statements, and
// is stored with it or not at all. Until one is committed, each takes everything: database/sql begins another where the
// connection turns out to be lost.
func (a *Along) Take(ctx context.Context) context.Context {
	return context.WithValue(ctx, takeKey{}, a)
}

// Left reports whether there is something held that no transaction has stored.
func (a *Along) Left() bool { return len(a.held) > 0 && !a.stored }

// holder is what holds the statements of a context, nil where nothing does.
func holder(ctx context.Context) *Along {
	a, _ := ctx.Value(holdKey{}).(*Along)
	return a
}

// taken is what goes along with a transaction that is begun in a context.
func taken(ctx context.Context) *Along {
	if a, ok := ctx.Value(takeKey{}).(*Along); ok && !a.stored {
		return a
	}
	return &Along{}
}
