import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

/** Threads, garbage, mapped files, a child and a socket; prints what came out. */
public class Work {
    static long threads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Callable<Long>> tasks = new ArrayList<>();
        for (long i = 0; i < 100; i++) {
            long number = i;
            tasks.add(() -> number);
        }
        long sum = 0;
        for (Future<Long> part : pool.invokeAll(tasks)) sum += part.get();
        pool.shutdown();
        return sum + LongStream.range(0, 1000).parallel().sum();
    }

    /** Many times the heap, a little of it kept, on several threads at once. */
    static long garbage() {
        return LongStream.range(0, 4).parallel().map(thread -> {
            byte[][] kept = new byte[16][];
            for (int i = 0; i < 4000; i++) kept[i % kept.length] = new byte[100_000];
            return kept.length;
        }).sum();
    }

    static long mapped() throws IOException {
        Path path = Path.of("mapped");
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer bytes = file.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            bytes.putInt(1 << 19, 42);
            bytes.force();
        }
        return Files.size(path);
    }

    static String child() throws Exception {
        Process process = new ProcessBuilder("sh", "-c", "read x; echo got $x").start();
        try (var input = process.outputWriter()) {
            input.write("line\n");
        }
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        return process.waitFor() + " " + printed.strip();
    }

    static int socket() throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread answer = new Thread(() -> {
                try (Socket peer = server.accept()) {
                    peer.getOutputStream().write(peer.getInputStream().read() + 1);
                } catch (IOException e) {
                    throw new AssertionError(e);
                }
            });
            answer.start();
            try (Socket client = new Socket("localhost", server.getLocalPort())) {
                client.getOutputStream().write(41);
                return client.getInputStream().read();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println(threads());
        System.out.println(garbage());
        System.out.println(mapped());
        System.out.println(child());
        System.out.println(socket());
        System.out.println(Runtime.getRuntime().availableProcessors());
    }
}
