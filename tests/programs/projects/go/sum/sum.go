// Package sum adds numbers on many goroutines.
package sum

import "sync"

// Of returns the sum of numbers, each added by a goroutine of its own.
func Of(numbers []int) int {
	var lock sync.Mutex
	var group sync.WaitGroup
	sum := 0
	for _, number := range numbers {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			lock.Lock()
			defer lock.Unlock()
			sum += number
		}(number)
	}
	group.Wait()
	return sum
}
