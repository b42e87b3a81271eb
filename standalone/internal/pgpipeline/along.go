package pgpipeline

import "context"

// Along is what goes along with the first statement that a transaction sends. One is for one transaction, and not safe
// for concurrent use.
type Along struct {
	// Queries are those that the transaction is going to run. Each is sent once, in this order; its answer is given out
	// when the same is asked for, unless something was written by then that may have changed it. So rows are locked
	// earlier than they are asked for.
	Queries []Query

	held  []statement
	taken bool
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

// Take returns a context in which the first transaction takes everything along: what is held comes before its own
// statements, and is stored with it or not at all.
func (a *Along) Take(ctx context.Context) context.Context {
	return context.WithValue(ctx, takeKey{}, a)
}

// Left reports whether there is something held that no transaction took along.
func (a *Along) Left() bool { return len(a.held) > 0 && !a.taken }

// holder is what holds the statements of a context, nil where nothing does.
func holder(ctx context.Context) *Along {
	a, _ := ctx.Value(holdKey{}).(*Along)
	return a
}

// taken is what goes along with a transaction that is begun in a context.
func taken(ctx context.Context) (held []statement, queries []Query) {
	a, ok := ctx.Value(takeKey{}).(*Along)
	if !ok || a.taken {
		return nil, nil
	}
	a.taken = true
	return a.held, a.Queries
}
