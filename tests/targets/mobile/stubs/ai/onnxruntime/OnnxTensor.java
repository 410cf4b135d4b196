package ai.onnxruntime;

import java.nio.ByteBuffer;

public class OnnxTensor implements OnnxValue {
    final ByteBuffer bytes;

    OnnxTensor(ByteBuffer bytes) {
        this.bytes = bytes;
    }

    public static OnnxTensor createTensor(OrtEnvironment environment, ByteBuffer data, long[] shape, OnnxJavaType type)
            throws OrtException {
        if (!data.isDirect() || type == null) throw new OrtException("expected a direct buffer and a type");
        return new OnnxTensor(data);
    }

    public ByteBuffer getByteBuffer() {
        return bytes;
    }

    @Override
    public void close() {}
}
