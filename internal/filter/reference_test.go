package filter_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// reference evaluates filters as docs/filters.md defines them: on decoded values, without any shortcut.
func reference(filterText, payload []byte) bool {
	var top map[string]any
	decode(filterText, &top)
	var value any
	decode(payload, &value)
	return meets(top, map[string]any{"type": "order.paid", "payload": value}, true)
}

func decode(text []byte, into any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		panic(err)
	}
}

// meets reports whether a value, which may be missing, meets a condition.
func meets(condition, value any, there bool) bool {
	switch c := condition.(type) {
	case []any:
		_, isArray := value.([]any)
		return there && isArray && !slices.ContainsFunc(c, func(part any) bool { return !meets(part, value, there) })
	case map[string]any:
		together := map[string]any{}
		for name, wanted := range c {
			switch {
			case !strings.HasPrefix(name, "$"):
				together[name] = wanted
			case isTogether(name, wanted):
				together[name] = wanted
			case !alone(name, wanted, value, there):
				return false
			}
		}
		return len(together) == 0 || one(together, value, there)
	}
	return one(map[string]any{"$eq": condition}, value, there)
}

// isTogether reports whether an operator wants one element of an array together with others.
func isTogether(name string, wanted any) bool {
	switch name {
	case "$eq", "$gt", "$gte", "$lt", "$lte", "$startsWith", "$endsWith", "$contains":
		return true
	case "$in":
		_, text := wanted.(string)
		return !text
	}
	return false
}

func alone(name string, wanted, value any, there bool) bool {
	switch name {
	case "$and":
		return !slices.ContainsFunc(wanted.([]any), func(c any) bool { return !meets(c, value, there) })
	case "$or":
		return slices.ContainsFunc(wanted.([]any), func(c any) bool { return meets(c, value, there) })
	case "$not":
		return !meets(wanted, value, there)
	case "$ne", "$neq":
		return !one(map[string]any{"$eq": wanted}, value, there)
	case "$exists", "$exist":
		return there == wanted.(bool)
	case "$nin":
		return !alone("$in", wanted, value, there)
	case "$in":
		text, isText := wanted.(string)
		if _, isArray := value.([]any); isText && !isArray {
			return one(map[string]any{"$contains": text}, value, there)
		}
		if isText {
			return one(map[string]any{"$eq": text}, value, there)
		}
		return one(map[string]any{"$in": wanted}, value, there)
	}
	panic(name)
}

// one reports whether a value, or one element of an array, meets all of a group.
func one(group map[string]any, value any, there bool) bool {
	array, isArray := value.([]any)
	if isArray && slices.ContainsFunc(array, func(element any) bool { return one(group, element, true) }) {
		return true
	}
	for name, wanted := range group {
		if strings.HasPrefix(name, "$") {
			if !there || !compares(name, wanted, value) {
				return false
			}
			continue
		}
		if isArray {
			return false
		}
		object, _ := value.(map[string]any)
		field, has := object[name]
		if !meets(wanted, field, has) {
			return false
		}
	}
	return true
}

func compares(name string, wanted, value any) bool {
	switch name {
	case "$eq":
		return reflect.DeepEqual(exact(wanted), exact(value))
	case "$in":
		list, isList := wanted.([]any)
		if !isList {
			list = []any{wanted}
		}
		return slices.ContainsFunc(list, func(w any) bool { return compares("$eq", w, value) })
	case "$gt", "$gte", "$lt", "$lte":
		order, ok := orderOf(value, wanted)
		return ok && map[string]bool{"$gt": order > 0, "$gte": order >= 0, "$lt": order < 0, "$lte": order <= 0}[name]
	}
	text, isText := value.(string)
	list, isList := wanted.([]any)
	if !isList {
		list = []any{wanted}
	}
	part := map[string]func(s, part string) bool{"$startsWith": strings.HasPrefix, "$endsWith": strings.HasSuffix, "$contains": strings.Contains}[name]
	return isText && slices.ContainsFunc(list, func(w any) bool { return part(text, w.(string)) })
}

func orderOf(a, b any) (int, bool) {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return 0, false
		}
		return rational(a).Cmp(rational(b)), true
	}
	return 0, false
}

func rational(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic(n)
	}
	return r
}

// exact is a value with its numbers as fractions.
func exact(value any) any {
	switch v := value.(type) {
	case json.Number:
		return "number " + rational(v).String()
	case string:
		return "string " + v
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = exact(v[i])
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name := range v {
			object[name] = exact(v[name])
		}
		return object
	}
	return value
}
