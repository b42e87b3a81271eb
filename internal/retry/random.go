package retry

import "strconv"

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
	var scratch [24]byte
	hash := fnv1a(fnvOffset, string(strconv.AppendInt(scratch[:0], int64(attempt), 10)))
	for _, id := range ids {
		length := strconv.AppendInt(scratch[:0], int64(len(id)), 10)
		hash = fnv1a(hash, "/")
		hash = fnv1a(hash, string(length))
		hash = fnv1a(hash, ":")
		hash = fnv1a(hash, id)
	}

	hash ^= hash >> 30
	hash *= 0xbf58476d1ce4e5b9
	hash ^= hash >> 27
	hash *= 0x94d049bb133111eb
	hash ^= hash >> 31

	return float64(hash>>11) / (1 << 53)
}

const (
	fnvOffset uint64 = 0xcbf29ce484222325
	fnvPrime  uint64 = 0x100000001b3
)

func fnv1a(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash ^= uint64(text[i])
		hash *= fnvPrime
	}

	return hash
}
