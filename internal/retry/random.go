package retry

import (
	"fmt"
	"hash/fnv"
)

// Random returns a number in [0,1) that depends only on its arguments: the ids of a delivery
// and the number of an attempt. A replayed workflow, or an attempt that is classified twice,
// gets the same jitter again.
//
// It is FNV-1a over the parts, each preceded by its length, so that ("ab", "c") and
// ("a", "bc") differ. The mixer of SplitMix64 finishes it, because otherwise similar ids would
// give similar numbers. The upper 53 bits are used. A change would change the timers of
// running workflows; a known-answer test pins the values.
//
// Sources: draft-eastlake-fnv; Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014.
func Random(attempt int, ids ...string) float64 {
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, attempt) // writing to a hash never fails
	for _, id := range ids {
		_, _ = fmt.Fprintf(sum, "/%d:%s", len(id), id)
	}

	hash := sum.Sum64()
	hash ^= hash >> 30
	hash *= 0xbf58476d1ce4e5b9
	hash ^= hash >> 27
	hash *= 0x94d049bb133111eb
	hash ^= hash >> 31

	return float64(hash>>11) / (1 << 53)
}
