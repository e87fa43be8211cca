fn main() {
    println!("cargo:rustc-env=THREADS=8");
}
