// C: threads, a mutex, thread-local storage, atomics.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 8, ROUNDS = 10000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long locked;
static atomic_long counted;
static _Thread_local long own;

static void *count(void *unused) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_mutex_lock(&lock);
    locked++;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&counted, 1);
    own++;
  }
  return unused == NULL && own == ROUNDS ? NULL : (void *)1;
}

int main(void) {
  pthread_t threads[THREADS];
  void *failed = NULL;
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, count, NULL)) return 1;
  for (int i = 0; i < THREADS; i++)
    if (pthread_join(threads[i], &failed) || failed) return 1;
  printf("%ld %ld\n", locked, atomic_load(&counted));
}
