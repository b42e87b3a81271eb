package config

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/credential"
)

// Setting is one setting as declared by the tags of its field; see the package's comment.
type Setting struct {
	Variable string // environment variable
	Flag     string // command-line flag, with its dashes
	Default  string // "" for none; "false" for a switch
	Unset    string
	Help     string
	Range    string // as text; "" unless the setting is a number or a duration
	Role     string
	Section  string
	See      string
}

// SectionTitle is the title of a section, in the documentation and in the help of commands.
func SectionTitle(section string) string {
	switch section {
	case "process":
		return "Addresses and logs"
	case "egress":
		return "Receivers"
	case "client":
		return "Command-line client"
	case "":
		return ""
	}
	return strings.ToUpper(section[:1]) + section[1:]
}

// Declared returns the settings of structs, including embedded structs, in the order of their fields. A
// variable that several structs declare is listed once.
func Declared(structs ...any) []Setting {
	var all []Setting
	seen := map[string]bool{}
	for _, s := range structs {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(s)) {
			variable := field.Tag.Get("env")
			if variable == "" || seen[variable] {
				continue
			}
			seen[variable] = true
			all = append(all, settingOf(field))
		}
	}
	return all
}

func settingOf(field reflect.StructField) Setting {
	tag := field.Tag
	s := Setting{
		Variable: tag.Get("env"), Flag: flagOf(field), Default: tag.Get("default"), Unset: tag.Get("unset"), Help: tag.Get("help"),
		Range: tag.Get("range"), Role: tag.Get("role"), Section: tag.Get("section"), See: tag.Get("see"),
	}
	if zero := tag.Get("zero"); zero != "" {
		s.Range = "0 for " + zero + ", or " + s.Range
	}
	if field.Type.Kind() == reflect.Bool && s.Default == "" {
		s.Default = "false"
	}
	return s
}

// flagOf returns the command-line flag of a field: the tag name, or the field's name in lower case with
// dashes between its words.
func flagOf(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return "--" + name
	}
	flag := []byte("-")
	for i := range len(field.Name) {
		c := field.Name[i]
		if 'A' <= c && c <= 'Z' {
			if i == 0 || field.Name[i-1] > 'Z' { // the start of a word
				flag = append(flag, '-')
			}
			c += 'a' - 'A'
		}
		flag = append(flag, c)
	}
	return string(flag)
}

// checkRanges adds errors about numbers and durations of a struct that are outside their declared range.
// settings is a pointer; embedded structs are not checked.
func checkRanges(settings any, bad *refusals) {
	value := reflect.ValueOf(settings).Elem()
	for i := range value.NumField() {
		tag := value.Type().Field(i).Tag
		declared, zero := tag.Get("range"), tag.Get("zero")
		if declared == "" {
			continue
		}
		number := numberOf(value.Field(i))
		least, most, err := parseRange(declared)
		switch {
		case err != nil:
			bad.addf(tag.Get("env"), "is declared with a range that cannot be read: %v", err)
		case zero != "" && number == 0, number >= least && number <= most: // false for NaN
		case zero != "":
			bad.addf(tag.Get("env"), "must be 0, for %s, or %s", zero, inWords(declared))
		default:
			bad.addf(tag.Get("env"), "must be %s", inWords(declared))
		}
	}
}

// cleanCredentials trims the keys, secrets and addresses with passwords of a struct, and adds errors about those with an invisible
// character inside. settings is a pointer; embedded structs are left out.
func cleanCredentials(settings any, bad *refusals) {
	value := reflect.ValueOf(settings).Elem()
	for i := range value.NumField() {
		tag, field := value.Type().Field(i).Tag, value.Field(i)
		kind := tag.Get("credential")
		if kind == "" {
			continue
		}
		clean := func(v reflect.Value) {
			text, err := credential.Clean(v.String(), kind == "phrase")
			switch {
			case err != nil:
				bad.addf(tag.Get("env"), "%s", err)
			case text == "" && v.String() != "":
				bad.addf(tag.Get("env"), "holds invisible characters only")
			default:
				v.SetString(text)
			}
		}
		if field.Kind() == reflect.String {
			clean(field)
			continue
		}
		for n := range field.Len() {
			clean(field.Index(n))
		}
	}
}

// numberOf returns the value of a field as a number; that of a duration in nanoseconds.
func numberOf(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// parseRange parses "<least> to <most>" or "<least> or more".
func parseRange(declared string) (least, most float64, err error) {
	from, to, bounded := strings.Cut(declared, " to ")
	most = math.Inf(1)
	if bounded {
		if most, err = parseBound(to); err != nil {
			return 0, 0, err
		}
	}
	least, err = parseBound(strings.TrimSuffix(from, " or more"))
	return least, most, err
}

// parseBound parses a number, a size in bytes, or a duration as nanoseconds.
func parseBound(text string) (float64, error) {
	if number, err := strconv.ParseFloat(text, 64); err == nil {
		return number, nil
	}
	var size ByteSize
	if size.UnmarshalText([]byte(text)) == nil {
		return float64(size), nil
	}
	d, err := time.ParseDuration(text)
	return float64(d), err
}

// inWords formats a range for an error: "between 1 and 1000", "at least 1h".
func inWords(declared string) string {
	if from, to, bounded := strings.Cut(declared, " to "); bounded {
		return "between " + from + " and " + to
	}
	return "at least " + strings.TrimSuffix(declared, " or more")
}

// Unknown returns the names in environ (as returned by os.Environ) that begin like a setting of Everpost
// but are unknown.
func Unknown(environ []string, known []Setting) []string {
	names := make(map[string]bool, len(known))
	for _, s := range known {
		names[s.Variable] = true
	}
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "EVERPOST_") && !strings.HasPrefix(name, "EVERPOST_TEST_") && !names[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
