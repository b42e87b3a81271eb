package filter

// operator is what an item of a condition does.
type operator uint8

const (
	opField    operator = iota // the value of a name meets a condition
	opEqual                    // $eq, or a plain value
	opNotEqual                 // $ne
	opGreater                  // $gt
	opAtLeast                  // $gte
	opLess                     // $lt
	opAtMost                   // $lte
	opIn                       // $in with a list
	opNotIn                    // $nin with a list
	opHas                      // $in with a string: a part of a string, or an element of an array
	opHasNot                   // $nin with a string
	opStarts                   // $startsWith
	opEnds                     // $endsWith
	opContains                 // $contains
	opExists                   // $exists: true
	opMissing                  // $exists: false
	opAnd                      // $and
	opOr                       // $or
	opNot                      // $not
)

// condition is a set of items that must all hold. Those of its group hold for one value: where the event has an array, for one of its
// elements. The others look at the value as it is; so $and, $or and $not combine answers, and a negation is the opposite of what it negates.
type condition struct {
	items  []item
	group  []int // indexes of fields and of comparisons that are not negated
	others []int
	list   bool // a plain list: the value is an array, and the items are like those of $and
}

// item is one part of a condition.
type item struct {
	op      operator
	pointer string // RFC 6901, into the filter
	raw     string // the filter's text there
	name    string // of a field, or the operator as it is written; "" for a plain value

	condition  *condition   // of opField and opNot
	conditions []*condition // of opAnd and opOr
	value      literal      // of a comparison with one value
	values     values       // of a comparison with several
}

func (c *condition) add(i item) {
	at := len(c.items)
	c.items = append(c.items, i)
	if i.op.grouped() && !c.list {
		c.group = append(c.group, at)
	} else {
		c.others = append(c.others, at)
	}
}

func (o operator) grouped() bool {
	switch o {
	case opField, opEqual, opGreater, opAtLeast, opLess, opAtMost, opIn, opStarts, opEnds, opContains:
		return true
	case opNotEqual, opNotIn, opHas, opHasNot, opExists, opMissing, opAnd, opOr, opNot:
	}
	return false
}
