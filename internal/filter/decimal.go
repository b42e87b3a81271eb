package filter

// maxExponentDigits bounds the exponent of a number in a filter. A payload's is bounded by maxExponent, which is beyond every number that a
// filter can hold, so that comparisons stay exact.
const (
	maxExponentDigits = 9
	maxExponent       = int64(1) << 60
)

// decimal is a number as it is written, as a sign and 0.d₁d₂d₃… × 10^exponent, where d₁ and the last digit are not 0. The digits are those
// of head, then those of tail. Zero has no digits and no sign.
type decimal struct {
	head, tail string
	exponent   int64
	negative   bool
}

// decimalOf reads a JSON number. It takes time for its length, not for its value: 1e999999999 is five characters of work.
func decimalOf(text string) decimal {
	var d decimal
	if text != "" && text[0] == '-' {
		d.negative, text = true, text[1:]
	}
	d.head, text = digits(text)
	if text != "" && text[0] == '.' {
		d.tail, text = digits(text[1:])
	}
	exponent := exponentOf(text)
	d.exponent = int64(len(d.head)) + exponent
	for d.head != "" && d.head[0] == '0' {
		d.head = d.head[1:]
		d.exponent--
	}
	if d.head == "" {
		for d.tail != "" && d.tail[0] == '0' {
			d.tail = d.tail[1:]
			d.exponent--
		}
	}
	d.tail = trimZeros(d.tail)
	if d.tail == "" {
		d.head = trimZeros(d.head)
	}
	if d.head == "" && d.tail == "" {
		return decimal{}
	}
	return d
}

// digits splits off the digits at the beginning.
func digits(text string) (found, rest string) {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}

func trimZeros(text string) string {
	for text != "" && text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	return text
}

// exponentOf reads e+12; 0 for "". Beyond maxExponent it is maxExponent.
func exponentOf(text string) int64 {
	if text == "" {
		return 0
	}
	text = text[1:]
	negative := false
	if text != "" && (text[0] == '+' || text[0] == '-') {
		negative, text = text[0] == '-', text[1:]
	}
	value := int64(0)
	for i := 0; i < len(text) && text[i] >= '0' && text[i] <= '9' && value < maxExponent; i++ {
		value = min(value*10+int64(text[i]-'0'), maxExponent)
	}
	if negative {
		return -value
	}
	return value
}

func (d decimal) length() int { return len(d.head) + len(d.tail) }

func (d decimal) digit(i int) byte {
	if i < len(d.head) {
		return d.head[i]
	}
	return d.tail[i-len(d.head)]
}

func (d decimal) sign() int {
	switch {
	case d.length() == 0:
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// compare returns -1, 0 or 1 as d is less than, equal to or greater than other. It reads at most the digits of the shorter one.
func (d decimal) compare(other decimal) int {
	sign := d.sign()
	if sign != other.sign() {
		if sign < other.sign() {
			return -1
		}
		return 1
	}
	if sign == 0 {
		return 0
	}
	return sign * d.compareSize(other)
}

// compareSize compares two numbers other than zero without their signs.
func (d decimal) compareSize(other decimal) int {
	switch {
	case d.exponent < other.exponent:
		return -1
	case d.exponent > other.exponent:
		return 1
	}
	n := min(d.length(), other.length())
	for i := range n {
		a, b := d.digit(i), other.digit(i)
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
	}
	switch { // the last digit is not 0
	case d.length() < other.length():
		return -1
	case d.length() > other.length():
		return 1
	}
	return 0
}
