package main

import (
	"strconv"

	"github.com/everpost/everpost/client"
)

// isNumbered says whether an endpoint of the load numbers what it gets: every other one.
func isNumbered(endpoint int) bool { return endpoint%2 == 1 }

// orderingKey is the key of an event: three, and none.
func orderingKey(number int) string { return []string{"", "a", "b", "c"}[number%4] }

// lineOf names a line.
type lineOf struct {
	endpoint, key string
	id            int64
}

// order checks the numbers of one line: what was acknowledged before another was posted has a lower one, and so has what comes earlier in a batch.
func (c *checker) order(line lineOf, numbers map[int]int64) {
	for a, n := range numbers {
		for b, m := range numbers {
			first, second := c.l.posted[a], c.l.posted[b]
			before := first.batch == second.batch && a < b || !first.acked.IsZero() && first.acked.Before(second.begun)
			if before && n > m {
				c.unexpectedf("events %d and %d have numbers %d and %d of key %q at endpoint %d", a, b, n, m, line.key, c.l.endpointOf[line.endpoint])
			}
		}
	}
}

// numbers checks that what numbered endpoints got has numbers: 1, 2, 3 and so on in each line, each once, in their order, and
// in every request the same. What was due later has none. No line begins anew within a run.
func (c *checker) numbers() {
	byLine := map[lineOf]map[int64]string{}
	byEvent := map[lineOf]map[int]int64{}
	numberOf := map[string]client.DeliveryStub{}
	for number, e := range c.l.events {
		for _, d := range e.Deliveries {
			p := c.l.promised[d.ID]
			if p == nil {
				continue
			}
			if wants := c.l.numbers && isNumbered(p.endpoint) && !p.delayed; wants != (d.Sequence > 0) {
				c.unexpectedf("delivery %s to endpoint %d has number %d; it should have one: %t", d.ID, p.endpoint, d.Sequence, wants)
			}
			if d.Sequence == 0 {
				continue
			}
			numberOf[d.ID] = d
			line := lineOf{d.EndpointID, e.OrderingKey, d.Line}
			if byLine[line] == nil {
				byLine[line], byEvent[line] = map[int64]string{}, map[int]int64{}
			}
			byEvent[line][number] = d.Sequence
			if other := byLine[line][d.Sequence]; other != "" {
				c.unexpectedf("deliveries %s and %s both have number %d of key %q at endpoint %d", other, d.ID, d.Sequence, e.OrderingKey, p.endpoint)
			}
			byLine[line][d.Sequence] = d.ID
		}
	}
	lines := map[lineOf]int{}
	for line, all := range byLine {
		c.order(line, byEvent[line])
		for n := range int64(len(all)) {
			if all[n+1] == "" {
				c.unexpectedf("number %d of key %q at endpoint %d is missing: there are %d", n+1, line.key, c.l.endpointOf[line.endpoint], len(all))
			}
		}
		line.id = 0
		lines[line]++
		if lines[line] > 1 {
			c.unexpectedf("the line of key %q at endpoint %d began anew", line.key, c.l.endpointOf[line.endpoint])
		}
	}
	for _, a := range c.l.arrivals {
		want, numbered := numberOf[a.delivery]
		sequence, line := "", ""
		if numbered {
			sequence, line = strconv.FormatInt(want.Sequence, 10), strconv.FormatInt(want.Line, 10)
		}
		if c.l.promised[a.delivery] != nil && (a.sequence != sequence || a.line != line) {
			c.unexpectedf("delivery %s arrived with number %q of line %q; it has %q of %q", a.delivery, a.sequence, a.line, sequence, line)
		}
	}
}
