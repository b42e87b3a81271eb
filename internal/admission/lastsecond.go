package admission

import (
	"math"
	"time"
)

// maxMarks bounds what a lastSecond remembers. Up to this rate per second it is exact; above, a mark stands for several requests, and
// a second may have one group of requests more than the rate.
const maxMarks = 256

// lastSecond bounds the requests of any one second by the configured rate, and by one if that is less, also when many of them are late.
type lastSecond struct {
	length time.Duration // a second, or a little less where most × group is not the rate
	most   int32         // marks within length
	group  int32         // requests per mark
	begun  int32         // of the last mark's group

	marks []time.Duration // the last ones, most at most, oldest first
}

// set changes the rate per second.
func (w *lastSecond) set(rate float64) {
	group := int32(math.Ceil(rate / maxMarks))
	if group != w.group {
		w.marks, w.begun = nil, 0
	}
	w.group, w.most = group, max(1, int32(rate)/group)
	w.length = min(time.Duration(w.most*w.group)*intervalOf(rate), time.Second)
	w.marks = w.marks[max(0, len(w.marks)-int(w.most)):]
}

// next is the first time, not before now, at which one more request is allowed.
func (w *lastSecond) next(now time.Duration) time.Duration {
	switch n := len(w.marks); {
	case n > 0 && w.begun < w.group:
		return max(now, w.marks[n-1])
	case n < int(w.most):
		return now
	}
	return max(now, w.marks[0]+w.length)
}

// add counts a request that begins at a time, which is not before that of the one before.
func (w *lastSecond) add(at time.Duration) {
	if w.begun < w.group && len(w.marks) > 0 {
		w.begun++
		return
	}
	if most := int(w.most); len(w.marks) >= most {
		w.marks = w.marks[len(w.marks)-most+1:]
	}
	w.marks, w.begun = append(w.marks, at), 1
}

// within returns how long ago those requests were that still count.
func (w *lastSecond) within(now time.Duration) (ages []time.Duration) {
	for _, at := range w.marks {
		if age := now - at; age < w.length {
			ages = append(ages, age)
		}
	}
	return ages
}
