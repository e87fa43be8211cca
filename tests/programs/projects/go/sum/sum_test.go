package sum

import "testing"

func TestAll(t *testing.T) {
	if got := Of([]int{1, 2, 3}); got != 6 {
		t.Fatalf("got %d", got)
	}
}
