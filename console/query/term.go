package query

import "strings"

// term is one part of a search: a word or name:value.
type term struct {
	from, to int    // bytes of the search, quotes included
	name     string // in lower case; "" for a word
	value    string // without quotes
	quoted   bool   // the value was quoted: it stands for itself
	open     bool   // the closing quote is missing
}

// as is the term with a name.
func (t term) as(name string) term {
	t.name = name
	return t
}

// split cuts a search at white space outside of quotes. A quote begins at the start of a value only, so that
// one within a word is a part of it.
func split(text string) []term {
	var terms []term
	for i := 0; i < len(text); {
		if isSpace(rune(text[i])) {
			i++
			continue
		}
		t := read(text, i)
		terms = append(terms, t)
		i = t.to
	}
	return terms
}

// read reads the term that begins at the byte.
func read(text string, from int) term {
	t := term{from: from}
	i := from
	if name := nameAt(text[from:]); name != "" {
		t.name = strings.ToLower(name)
		i += len(name) + 1
	}
	if i < len(text) && text[i] == '"' {
		end := strings.IndexByte(text[i+1:], '"')
		t.quoted = true
		if end < 0 {
			t.value, t.to, t.open = text[i+1:], len(text), true
			return t
		}
		t.value, t.to = text[i+1:i+1+end], i+end+2
		return t
	}
	t.to = len(text)
	if end := strings.IndexFunc(text[i:], isSpace); end >= 0 {
		t.to = i + end
	}
	t.value = text[i:t.to]
	return t
}

// nameAt returns the letters before a colon; "" if the text does not begin with a name. The colon of "https://"
// belongs to a URL, and an event type such as order:paid has no known name before its colon.
func nameAt(text string) string {
	for i := range len(text) {
		switch c := text[i]; {
		case c == ':' && i > 0:
			if strings.HasPrefix(text[i:], "://") {
				return ""
			}
			if known(strings.ToLower(text[:i])) {
				return text[:i]
			}
			return ""
		case 'a' <= c|0x20 && c|0x20 <= 'z', c == '_':
		default:
			return ""
		}
	}
	return ""
}

func isSpace(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }
