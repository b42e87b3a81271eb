package keys

// Cached is the cache of keys.
func (s *Keys) Cached() *keyCache { return s.cache }
