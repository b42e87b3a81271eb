package api

import (
	"strconv"

	"github.com/everpost/everpost/internal/webhook"
)

const notATag = "must be 1 to 64 letters, digits and . : / - _"

// readTags reads the tags of an event; nil for none. A tag that is given twice is a mistake of the caller: it is refused, as an
// endpoint is in endpoint_ids.
func readTags(d *jsonDecoder) []string {
	var tags []string
	seen := make(map[string]bool)
	d.array(func(i int) {
		if i == webhook.MaxTags {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxTags) + " entries")
		}
		if i >= webhook.MaxTags {
			d.skip()
			return
		}
		tag, ok := d.str()
		switch {
		case !ok:
		case !webhook.ValidTag(tag):
			d.note(notATag)
		case seen[tag]:
			d.note("is listed more than once")
		default:
			seen[tag] = true
			tags = append(tags, tag)
		}
	})
	return tags
}
