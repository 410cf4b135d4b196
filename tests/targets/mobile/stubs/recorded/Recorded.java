package recorded;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** What the real runtime gave for an input: files of the folder "recorded", named by the digest of all inputs' bytes. */
public final class Recorded {
    private Recorded() {}

    public static byte[] answer(Iterable<ByteBuffer> inputs) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (ByteBuffer input : inputs) {
                ByteBuffer copy = input.duplicate();
                copy.rewind();
                digest.update(copy);
            }
            StringBuilder name = new StringBuilder();
            for (byte each : digest.digest()) name.append(String.format("%02x", each));
            File file = new File(System.getProperty("recorded"), name.toString());
            if (!file.isFile()) throw new IllegalStateException("nothing was recorded for these inputs: " + name);
            return Files.readAllBytes(file.toPath());
        } catch (NoSuchAlgorithmException | IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Bytes of each tensor, from a property such as "inputs" with commas between. */
    public static int[] sizes(String property) {
        String[] words = System.getProperty(property).split(",");
        int[] found = new int[words.length];
        for (int at = 0; at < words.length; at++) found[at] = Integer.parseInt(words[at]);
        return found;
    }
}
