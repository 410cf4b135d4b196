package android.content.res;

import java.io.Closeable;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.IOException;

public class AssetFileDescriptor implements Closeable {
    private final File file;
    private final FileInputStream stream;

    AssetFileDescriptor(File file) throws IOException {
        this.file = file;
        this.stream = new FileInputStream(file);
    }

    public FileDescriptor getFileDescriptor() throws IOException {
        return stream.getFD();
    }

    public long getStartOffset() {
        return 0;
    }

    public long getDeclaredLength() {
        return file.length();
    }

    @Override
    public void close() throws IOException {
        stream.close();
    }
}
