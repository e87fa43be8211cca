package main

import (
	"fmt"
	"runtime"

	"example.org/box/sum"
)

func main() {
	numbers := make([]int, 1000)
	for i := range numbers {
		numbers[i] = i
	}
	fmt.Println(sum.Of(numbers), runtime.NumCPU())
}
