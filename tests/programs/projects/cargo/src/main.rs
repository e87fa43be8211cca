fn main() {
    println!("{}", sums::on_threads(1000));
}
