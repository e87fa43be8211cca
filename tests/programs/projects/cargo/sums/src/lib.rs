use std::thread;

/// The sum of the numbers below `end`, each part of them added by a thread of its own.
pub fn on_threads(end: u64) -> u64 {
    let threads: u64 = env!("THREADS").parse().unwrap();
    let parts: Vec<_> = (0..threads)
        .map(|part| thread::spawn(move || (0..end).filter(|n| n % threads == part).sum::<u64>()))
        .collect();
    parts.into_iter().map(|part| part.join().unwrap()).sum()
}

#[test]
fn adds() {
    assert_eq!(on_threads(4), 6);
}
